"""From a request to a job script: request, plan, checks, price, rendering."""
