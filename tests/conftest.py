"""Eight CPU devices for every test; what is not told otherwise still uses one."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
