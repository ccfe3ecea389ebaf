"""What tap-spark-jdbc and target-spark-lake agree on; it knows neither of them."""
