"""Reports for people: the soak report, one HTML file with its pictures inside."""
