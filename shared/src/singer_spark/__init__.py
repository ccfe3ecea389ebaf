"""What tap-spark-jdbc and target-spark-lake share; it depends on neither of them."""
