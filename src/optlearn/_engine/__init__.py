"""What runs a system: functions of vectors, traced or compiled once for each structure."""
