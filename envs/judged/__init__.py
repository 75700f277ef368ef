"""Any task, any rubric: rows of one's own, graded by the rubrics that one names."""
