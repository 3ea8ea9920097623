"""MySQL and MariaDB, by aiomysql: the URL, connections, and what a failure means."""
