"""Several processes of one program: how ranks agree, meet, and end together."""
