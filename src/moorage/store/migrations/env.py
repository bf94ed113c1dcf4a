"""What Alembic runs: the steps on the connection and in the transaction that `migrating.py` hands over."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
