from tests.contracts.encoding_contract import EncodingContract


class TestRegisteredEncodings(EncodingContract):
    """Every name of ``list_encodings``, in every frame in which it is defined."""
