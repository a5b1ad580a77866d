"""How fast a kernel can be: chips, occupancy, lower bounds and estimates in cycles. Pure functions of counts."""
