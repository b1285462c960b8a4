package generate

import corev1alpha1 "refract.dev/api/core/v1alpha1"

// addPropagation adds a propagation policy and returns it: a PropagationPolicy if the namespace is not empty, otherwise
// a ClusterPropagationPolicy.
func (b *builder) addPropagation(namespace string) Document {
	kind, metadata := corev1alpha1.KindClusterPropagationPolicy, Document{}
	if namespace != "" {
		kind, metadata["namespace"] = corev1alpha1.KindPropagationPolicy, namespace
	}
	metadata["name"] = b.name(kind, namespace, pick(b.choices, "everywhere", "placement", "regions"))
	return b.add(Document{
		"apiVersion": corev1alpha1.GroupVersion.String(), "kind": kind, "metadata": metadata,
		"spec": b.placement(),
	})
}

// placement returns a random spec of a propagation policy.
func (b *builder) placement() Document {
	spec := Document{"schedulingMode": "Duplicate"}
	divides := b.chance(25)
	if divides {
		spec["schedulingMode"] = "Divide"
		if b.chance(30) {
			spec["replicasStrategy"] = "Binpack"
		}
	}
	switch b.IntN(10) {
	case 0:
		spec["clusterSelector"] = b.selector()
	case 1:
		spec["clusterAffinity"] = b.affinity()
	case 2:
		spec["placement"] = b.listed(divides)
	case 3:
		spec["maxClusters"] = b.between(0, 4)
	default: // Every cluster.
	}
	if b.chance(60) {
		spec["tolerations"] = []Document{
			{"key": "dedicated", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"},
			{"key": "maintenance", "operator": "Exists"},
		}
	}
	if b.chance(15) {
		b.inert(spec)
	}
	return spec
}

// listed returns a list for the field placement. Preferences are mostly set only if they have an effect.
func (b *builder) listed(divides bool) []Document {
	names := b.names()
	if b.slips() {
		names = []string{"retired-1"}
	}
	var list []Document
	for _, name := range names {
		desired := Document{"cluster": name}
		if divides || b.chance(10) {
			least := b.between(0, 2)
			desired["preferences"] = Document{
				"minReplicas": least, "maxReplicas": least + b.between(1, 9), "weight": b.between(1, 3), "priority": b.between(0, 2),
			}
		}
		list = append(list, desired)
	}
	return list
}

// inert sets a field that does not affect the first placement of an object.
func (b *builder) inert(spec Document) {
	switch b.IntN(5) {
	case 0:
		spec["schedulingProfile"] = "default"
	case 1:
		spec["replicasStrategy"] = pick(b.choices, "Spread", "Binpack")
	case 2:
		spec["autoMigration"] = Document{"when": Document{"podUnschedulableFor": "1m"}, "keepUnschedulableReplicas": true}
	case 3:
		spec["reschedulePolicy"] = Document{
			"disableRescheduling": b.chance(50), "rescheduleWhen": Document{"clusterJoined": b.chance(50)},
			"replicaRescheduling": Document{"avoidDisruption": b.chance(50)},
		}
	default:
		spec["disableFollowerScheduling"] = true
	}
}
