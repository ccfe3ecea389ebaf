"""Reads a database with Spark or Arrow, and writes it as Singer messages. Start with `tap`."""
