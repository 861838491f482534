#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The same job by spark-submit in cluster mode, for a release `updraft` in the namespace `data`; job-with-secret.yaml is the pod template
# beside this file.
set -eu
here=$(dirname "$0")
exec spark-submit \
  --master "k8s://${KUBERNETES_API:?the address of the API server, such as https://10.0.0.1:6443}" \
  --deploy-mode cluster \
  --name nightly \
  --jars local:///opt/job/updraft-spark-4.2_2.13-0.1.0.jar \
  --conf spark.kubernetes.namespace=data \
  --conf spark.kubernetes.authenticate.driver.serviceAccountName=spark \
  --conf spark.kubernetes.container.image=registry.example/data/nightly:1 \
  --conf spark.kubernetes.driver.podTemplateFile="$here/job-with-secret.yaml" \
  --conf spark.kubernetes.executor.podTemplateFile="$here/job-with-secret.yaml" \
  --conf spark.executor.instances=4 \
  --conf spark.executor.cores=4 \
  --conf spark.executor.memory=8g \
  --conf spark.executor.extraJavaOptions=-Dsun.net.inetaddr.ttl=5 \
  --conf spark.sql.extensions=io.updraft.spark.UpdraftExtensions \
  --conf spark.updraft.udf.endpoint=grpc://updraft-pool-default.data:8815 \
  --conf spark.updraft.udf.tokenFile=/etc/updraft/updraft-pool-default-token/token \
  --conf spark.updraft.write.endpoint=grpc://updraft-writer.data:8816 \
  --conf spark.updraft.write.tokenFile=/etc/updraft/updraft-writer-token/token \
  --conf spark.updraft.write.delivery=return \
  local:///opt/job/nightly.py
