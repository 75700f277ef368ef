"""The environments over HTTP: an aiohttp service, its OpenAPI document, and a client."""
