"""Models that can be called or served: services, the chat client, managed vLLM servers, receipts.

Judges, simulators and policies all need a model, so this package stands below all of them and imports none.
"""
