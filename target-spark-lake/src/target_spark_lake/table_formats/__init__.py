"""The formats of tables: `table_format` says what each must do."""
