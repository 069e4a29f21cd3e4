"""The engines that run systems: functions of vectors, traced or compiled once for each structure."""
