package generate

import (
	"fmt"
	"maps"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Label keys of clusters, and the values that policies select. The value of the label nodes is mostly a number.
var (
	regions   = []string{"eu", "us", "ap"}
	envs      = []string{"prod", "stage", "dev"}
	tiers     = []string{"gold", "silver", "bronze"}
	labelKeys = []string{"region", "env", "tier", "example.com/provider", "nodes"}
)

// addCluster adds a cluster.
func (b *builder) addCluster() {
	labels := b.clusterLabels()
	stem := stringAt(labels, "region")
	if stem == "" {
		stem = "member"
	}
	cluster := federatedCluster(b.name(corev1alpha1.KindFederatedCluster, "", stem), labels)
	if b.chance(20) {
		member(cluster, "spec")["taints"] = []Document{pick(b.choices,
			Document{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"},
			Document{"key": "maintenance", "effect": "NoExecute"},
			Document{"key": "expensive", "value": "yes", "effect": "PreferNoSchedule"},
		)}
	}
	b.add(cluster)
}

func federatedCluster(name string, labels Document) Document {
	metadata := Document{"name": name}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	return Document{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": corev1alpha1.KindFederatedCluster, "metadata": metadata,
		"spec": Document{"apiEndpoint": fmt.Sprintf("https://%s.clusters.example:6443", name), "secretRef": Document{"name": name}},
	}
}

func (b *builder) clusterLabels() Document {
	labels := Document{}
	for _, key := range labelKeys {
		if b.chance(70) {
			labels[key] = b.labelValue(key)
		}
	}
	return labels
}

// labelValue returns a possible value of a cluster label.
func (b *builder) labelValue(key string) string {
	switch key {
	case "region":
		return pick(b.choices, regions...)
	case "env":
		return pick(b.choices, envs...)
	case "tier":
		return pick(b.choices, tiers...)
	case "nodes":
		return pick(b.choices, "3", "12", "150", "unknown")
	default:
		return pick(b.choices, "alpha", "beta", "")
	}
}

// clusterNames returns the names of all clusters.
func (b *builder) clusterNames() []string {
	var names []string
	for _, c := range b.all(isCluster) {
		names = append(names, nameOf(c))
	}
	return names
}

// target returns random targetClusters of a rule.
func (b *builder) target() Document {
	t := Document{}
	switch b.IntN(10) {
	case 0, 1, 2:
		t["clusters"] = b.names()
	case 3, 4:
		t["clusterSelector"] = b.selector()
	case 5, 6, 7:
		t["clusterAffinity"] = b.affinity()
	case 8:
		t["clusterSelector"], t["clusterAffinity"] = b.selector(), b.affinity()
	default: // Empty selects every cluster.
	}
	if len(t) == 1 && b.chance(10) {
		t["clusters"] = b.names()
	}
	return t
}

func (b *builder) names() []string {
	names := some(b.choices, 4, b.clusterNames())
	if b.slips() {
		names = append(names, "retired-1")
	}
	return names
}

// selector returns labels of a random cluster, if that cluster has labels.
func (b *builder) selector() Document {
	labels := labelsOf(pick(b.choices, b.all(isCluster)...))
	keys := slices.Sorted(maps.Keys(labels))
	if len(keys) == 0 || b.slips() {
		return Document{"region": "antarctica"}
	}
	selector := Document{}
	for _, key := range some(b.choices, 2, keys) {
		selector[key] = labels[key]
	}
	return selector
}

func (b *builder) affinity() []Document {
	var terms []Document
	for range b.between(1, 2) {
		term := Document{}
		if b.chance(75) {
			var expressions []Document
			for range b.between(1, 2) {
				expressions = append(expressions, b.expression())
			}
			term["matchExpressions"] = expressions
		}
		if len(term) == 0 || b.chance(15) {
			term["matchFields"] = []Document{{"key": "metadata.name", "operator": pick(b.choices, "In", "NotIn"), "values": b.names()}}
		}
		if b.slips() {
			term = Document{} // Selects nothing.
		}
		terms = append(terms, term)
	}
	return terms
}

func (b *builder) expression() Document {
	key := pick(b.choices, labelKeys...)
	switch operator := pick(b.choices, "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"); operator {
	case "Gt", "Lt":
		return Document{"key": "nodes", "operator": operator, "values": []string{pick(b.choices, "5", "100")}}
	case "Exists", "DoesNotExist":
		return Document{"key": key, "operator": operator}
	default:
		return Document{"key": key, "operator": operator, "values": []string{b.labelValue(key), b.labelValue(key)}}
	}
}
