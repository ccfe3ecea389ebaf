"""The pipeline in /srv/shop, every day at five, for Airflow 3.

The folder holds tap.json and target.json.
"""

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Asset

FOLDER = "/srv/shop"

with DAG(
    dag_id="shop",
    description="Loads the shop's tables into the lake",
    schedule="0 5 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["spark-lake"],
):
    BashOperator(
        task_id="run",
        bash_command=f"{FOLDER}/.venv/bin/spark-lake run",
        cwd=FOLDER,
        # tap.json reads the password from this variable. It comes from the Airflow connection
        # "shop".
        env={"SHOP_PASSWORD": "{{ conn.shop.password }}"},
        append_env=True,
        # A failed run has published nothing, so a retry is always safe.
        retries=3,
        retry_delay=timedelta(minutes=5),
        execution_timeout=timedelta(hours=4),
        # Other DAGs can be scheduled on this asset.
        outlets=[Asset("shop_lake")],
        do_xcom_push=False,
    )
