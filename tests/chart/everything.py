# SPDX-License-Identifier: Apache-2.0
"""Values that use every part of the chart."""

from __future__ import annotations

from typing import Any

EVERYTHING: dict[str, Any] = {
    "imagePullSecrets": [{"name": "registry"}],
    "commonLabels": {"owner": "data"},
    "common": {
        "tls": {"mode": "certManager", "clientCertificates": True, "issuerRef": {"name": "ours"}},
        "autoscaling": {"mode": "hpa", "waiting": 2, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}},
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"team": "etl"}}}],
            "observers": [{"namespaceSelector": {}}],
            "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        },
        "clientNamespaces": ["etl"],
        "service": {"annotations": {"cloud/balancer": "internal"}, "spec": {"type": "LoadBalancer"}},
        "container": {
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            "securityContext": {"seLinuxOptions": {"level": "s0:c1,c2"}},
            "envFrom": [{"configMapRef": {"name": "ours"}}],
            "imagePullPolicy": "Always",
            "livenessProbe": {"initialDelaySeconds": 3},
        },
        "podTemplate": {
            "metadata": {"labels": {"team": "etl"}, "annotations": {"note": "none"}},
            "spec": {
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
                "hostUsers": False,
                "nodeSelector": {"disk": "fast"},
                "tolerations": [{"key": "spot", "operator": "Exists"}],
                "affinity": {"nodeAffinity": {}},
                "priorityClassName": "high",
                "schedulerName": "batch",
                "dnsPolicy": "None",
                "dnsConfig": {"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
                "securityContext": {"supplementalGroups": [7]},
                "runtimeClassName": "gvisor",
                "initContainers": [{"name": "first", "image": "registry.test/first:1"}],
                "containers": [{"name": "beside", "image": "registry.test/beside:1"}],
            },
        },
        "serviceAccount": {"annotations": {"cloud/identity": "writer"}},
    },
    "pools": {
        "default": {"workers": {"functions": {"modules": ["ours.functions"], "configMap": "functions"}}},
        "gpu": {
            "workers": {"resources": {"limits": {"nvidia.com/gpu": 1}}},
            "podTemplate": {"spec": {"runtimeClassName": "nvidia"}},
            "autoscaling": {"mode": "keda", "waiting": 1},
        },
    },
    "writer": {"roots": ["/data/tables"], "settings": {"maxOpenFiles": 64}},
    "monitoring": {"podMonitors": True, "rules": True, "dashboards": True},
    "extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ours"}, "data": {"a": "b"}}],
}
