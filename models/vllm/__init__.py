"""Models that we serve with vLLM: command line, supervision, life cycle, memory arithmetic.

vLLM itself is never imported: it runs in an interpreter and a process of its own.
"""
