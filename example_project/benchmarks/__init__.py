"""How fast a whole MLP is in one launch, against everything else that computes it."""
