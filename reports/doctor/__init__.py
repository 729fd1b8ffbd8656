"""`leadline doctor`: whether an installation can page, from its configuration to a receiver."""
