"""What there is to know about each encoding, out of its own declarations: ``docs/encodings.md`` and its figure."""
