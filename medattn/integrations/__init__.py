"""Bridges to other libraries; each is imported by its own name, since each needs its library installed."""
