"""Abstention QA: factoid questions, and a policy that should rather abstain than be wrong."""
