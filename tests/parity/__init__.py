"""What others compute is what we compute, where they are installed; where they are wrong, the test says so."""
