"""The service: detectors run on a fleet, and what they find becomes pages, an API and a board.

One cycle reads the new points (`memory`), leaves out what can't be judged (`refuse`), judges,
follows findings over time (`track`), groups them (`incident`), writes the ledger and publishes a
`snapshot`; `alertmanager` posts what fires; `api` and `board` show the snapshot.
"""
