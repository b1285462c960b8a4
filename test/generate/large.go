package generate

import (
	"fmt"
	"path"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Size is the size of a fleet of [Large].
type Size struct {
	// Objects is the number of Deployments, each with 2 to 2.5 KB of YAML.
	Objects int
	// Clusters is the number of clusters. Each has the labels region, env and tier, with three values each.
	Clusters int
	// Policies is the number of OverridePolicies. Each object names one, so there must be at least one if there are objects.
	Policies int
}

// Folders and files of a fleet of [Large].
const (
	LargeObjects    = "objects"         // One file for each object.
	LargePolicies   = "policies"        // One file for each OverridePolicy: see [LargePolicy].
	LargeClusters   = "clusters.yaml"   // All clusters.
	LargePlacements = "placements.yaml" // One ClusterPropagationPolicy.
)

// largeNamespaces is the number of namespaces of the policies.
const largeNamespaces = 10

// Large returns a fleet of the given size, for benchmarks. Each object is placed on each cluster and names one
// OverridePolicy, which makes three variants of it. With at least 27 clusters, there is a cluster for each combination
// of labels, so each variant has several clusters.
func Large(size Size) Fleet {
	f := Fleet{}
	for i := range size.Clusters {
		labels := Document{"region": nth(regions, i), "env": nth(envs, i/3), "tier": nth(tiers, i/9)}
		f[LargeClusters] = append(f[LargeClusters], copied(federatedCluster(fmt.Sprintf("cluster-%04d", i), labels)))
	}
	for i := range size.Policies {
		f[LargePolicy(i)] = []Document{copied(largePolicy(i))}
	}
	for i := range size.Objects {
		d := copied(largeDeployment(i, i%size.Policies))
		f[path.Join(LargeObjects, namespaceOf(d), nameOf(d)+".yaml")] = []Document{d}
	}
	f[LargePlacements] = []Document{{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindClusterPropagationPolicy,
		"metadata": Document{"name": "everywhere"}, "spec": Document{"schedulingMode": "Duplicate"},
	}}
	return f
}

// LargePolicy returns the path of the OverridePolicy with this index. The first item of jsonpatch in its first rule
// sets /spec/replicas.
func LargePolicy(i int) string {
	return path.Join(LargePolicies, largeNamespace(i), largePolicyName(i)+".yaml")
}

func largeNamespace(policy int) string { return fmt.Sprintf("team-%02d", policy%largeNamespaces) }

func largePolicyName(policy int) string { return fmt.Sprintf("overrides-%03d", policy) }

func nth(values []string, i int) string { return values[i%len(values)] }

// largePolicy has one rule for each value of one cluster label. Each rule selects its clusters in a different way.
func largePolicy(i int) Document {
	key := nth([]string{"region", "env", "tier"}, i)
	values := map[string][]string{"region": regions, "env": envs, "tier": tiers}[key]
	affinity := func(operator string, values ...string) Document {
		return Document{"clusterAffinity": []Document{{"matchExpressions": []Document{{"key": key, "operator": operator, "values": values}}}}}
	}
	return Document{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindOverridePolicy,
		"metadata": Document{"name": largePolicyName(i), "namespace": largeNamespace(i)},
		"spec": Document{"overrideRules": []Document{
			{"targetClusters": Document{"clusterSelector": Document{key: values[0]}}, "overriders": Document{
				"image": []Document{{"operations": []Document{
					{"imageComponent": "Registry", "operator": "overwrite", "value": fmt.Sprintf("mirror-%d.example", i)},
					{"imageComponent": "Tag", "operator": "overwrite", "value": "v9"},
				}}},
				"labels":    []Document{{"operator": "addIfAbsent", "value": Document{"example.com/ring": values[0]}}},
				"jsonpatch": []Document{{"path": "/spec/replicas", "operator": "replace", "value": 10 + i}},
			}},
			{"targetClusters": affinity("In", values[1], "elsewhere"), "overriders": Document{
				"args": []Document{{"containerName": "app", "operator": "append", "value": []string{"--region=" + values[1]}}},
				"envs": []Document{{"containerName": "app", "operator": "overwrite", "value": []Document{{"name": "LOG_LEVEL", "value": "debug"}}}},
			}},
			{"targetClusters": affinity("NotIn", values[0], values[1]), "overriders": Document{
				"annotations": []Document{{"operator": "overwrite", "value": Document{"example.com/contact": "on-call"}}},
				"jsonpatch": []Document{
					{"path": "/spec/template/spec/nodeSelector", "operator": "add", "value": Document{"example.com/pool": "spot"}},
					{"path": "/spec/template/spec/containers/-1/resources/limits/memory", "operator": "replace", "value": "256Mi"},
				},
			}},
		}},
	}
}

// largeDeployment is a Deployment like those of application teams.
func largeDeployment(i, policy int) Document {
	name := fmt.Sprintf("app-%05d", i)
	selector := Document{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop"}
	return Document{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": Document{
			"name": name, "namespace": largeNamespace(policy),
			"labels": Document{
				"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "app.kubernetes.io/version": fmt.Sprintf("1.%d.0", i%20),
				corev1alpha1.OverridePolicyLabel: largePolicyName(policy), corev1alpha1.ClusterPropagationPolicyLabel: "everywhere",
			},
			"annotations": Document{"example.com/contact": fmt.Sprintf("team-%d@shop.example", i%30)},
		},
		"spec": Document{
			"replicas": 2 + i%5, "revisionHistoryLimit": 3, "selector": Document{"matchLabels": selector},
			"strategy": Document{"type": "RollingUpdate", "rollingUpdate": Document{"maxSurge": 1, "maxUnavailable": 0}},
			"template": Document{
				"metadata": Document{"labels": selector},
				"spec": Document{
					"serviceAccountName": name, "terminationGracePeriodSeconds": 45,
					"securityContext": Document{"runAsNonRoot": true},
					"containers":      []Document{largeApp(i, name), largeProxy()},
					"volumes":         []Document{{"name": "config", "configMap": Document{"name": name}}, {"name": "tmp", "emptyDir": Document{}}},
				},
			},
		},
	}
}

func largeApp(i int, name string) Document {
	return Document{
		"name": "app", "image": fmt.Sprintf("registry.example/shop/%s:1.%d.0", name, i%20),
		"args":  []string{"--listen=:8080", "--config=/etc/app/config.yaml", "--log-format=json"},
		"ports": []Document{{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}},
		"env": []Document{
			{"name": "LOG_LEVEL", "value": "info"},
			{"name": "DATABASE_URL", "valueFrom": Document{"secretKeyRef": Document{"name": name + "-db", "key": "url"}}},
			{"name": "POD_NAME", "valueFrom": Document{"fieldRef": Document{"fieldPath": "metadata.name"}}},
		},
		"livenessProbe":  Document{"httpGet": Document{"path": "/healthz", "port": "http"}, "initialDelaySeconds": 10, "periodSeconds": 10},
		"readinessProbe": Document{"httpGet": Document{"path": "/readyz", "port": "http"}, "periodSeconds": 5},
		"resources":      Document{"requests": Document{"cpu": "250m", "memory": "256Mi"}, "limits": Document{"memory": "512Mi"}},
		"volumeMounts":   []Document{{"name": "config", "mountPath": "/etc/app", "readOnly": true}},
	}
}

func largeProxy() Document {
	return Document{
		"name": "proxy", "image": "registry.example/platform/proxy:v1.30.2", "command": []string{"/proxy", "--upstream=127.0.0.1:8080"},
		"ports":      []Document{{"name": "tls", "containerPort": 8443}},
		"resources":  Document{"requests": Document{"cpu": "50m", "memory": "64Mi"}, "limits": Document{"memory": "128Mi"}},
		"workingDir": "/",
	}
}
