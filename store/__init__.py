"""The query client (PromQL in, arrays out) and the tables (CSV and Parquet in, arrays out).

`PromStore` in `store.prometheus` reads panels, `extend` in `store.history` keeps them current,
`read_table` in `store.table` reads them from a file.
"""
