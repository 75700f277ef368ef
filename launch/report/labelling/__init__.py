"""``gavel label``: people label what a judge was asked, blind to its verdict."""
