"""Other people's detectors, each in a small file, with its settings as published."""
