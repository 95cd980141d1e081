"""What was recorded: a Chrome trace as columns, its joins, its completeness. Pure: no torch."""
