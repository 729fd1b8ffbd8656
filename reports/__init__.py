"""Reports: the soak report, as HTML with its pictures inside, as Markdown and as JSON."""
