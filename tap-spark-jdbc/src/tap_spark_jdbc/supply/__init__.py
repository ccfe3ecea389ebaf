"""Suppliers of record batches: ADBC, ConnectorX and JDBC."""
