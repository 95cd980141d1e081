"""What it was before: profiles compared with earlier ones, from records alone."""
