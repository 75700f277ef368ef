"""Reports of a run: one file to look at (``report.html``), a local server that follows it, tables; see
``docs/reports.md``.
"""
