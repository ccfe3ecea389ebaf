"""JDBC driver jars: resolved once into the user's cache, then started from there without a network."""
