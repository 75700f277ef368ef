"""What is graded for others: over HTTP (``gavel serve``) and in Python (``gavel.Grader``)."""
