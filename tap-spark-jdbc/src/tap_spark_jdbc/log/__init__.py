"""Changes from the database's log (PostgreSQL): a slot is peeked by SQL, its messages decoded, its
rows sent as lines.

Peeking consumes nothing. A bookmark holds the log position up to which everything is in the lake,
and only the next run moves the slot there. Start with `log_run`; `slot` queries the server,
`pgoutput` and `row_columns` decode, `column_values` parses values. Everything here handles whole
Arrow batches: there is no loop over rows.
"""
