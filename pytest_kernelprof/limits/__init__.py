"""What was promised: markers and keywords become limits, profiles are judged by them."""
