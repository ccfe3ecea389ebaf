"""Changes from the database's log (PostgreSQL): a slot is peeked by SQL, its messages decoded, its rows sent as lines.

Peeking consumes nothing. A bookmark says up to which place of the log all is in the lake, and only the run after it
moves the slot there. Start with `log_run`; `slot` asks the server, `pgoutput` and `row_columns` decode, `column_values`
makes values of texts. Everything here handles whole Arrow batches: there is no loop over rows.
"""
