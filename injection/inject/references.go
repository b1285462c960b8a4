package inject

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// references returns the objects that the items name, each once. If several items name the same object, the result has
// the required keys of all of them, and the object is optional only if it is optional for each item. An item requires
// no keys of an optional object.
func (c *contents) references() []Reference {
	var r references
	for _, v := range c.env {
		if from := v.value.ValueFrom; from != nil {
			r.addKeyRefs(from, v.at.Child("valueFrom"))
		}
	}
	for _, v := range c.envFrom {
		if ref := v.value.SecretRef; ref != nil {
			r.add(secretKind, ref.Name, nil, ref.Optional, v.at.Child("secretRef", "name"))
		}
		if ref := v.value.ConfigMapRef; ref != nil {
			r.add(configMapKind, ref.Name, nil, ref.Optional, v.at.Child("configMapRef", "name"))
		}
	}
	for _, v := range c.volumes {
		r.addVolume(&v.value.VolumeSource, v.at)
	}
	return r.sorted()
}

// references collects references.
type references struct {
	found []Reference
	at    map[[2]string]int // The index in found, by kind and name.
}

func (r *references) sorted() []Reference {
	for i := range r.found {
		slices.Sort(r.found[i].Keys)
		r.found[i].Keys = slices.Compact(r.found[i].Keys)
	}
	slices.SortFunc(r.found, func(a, b Reference) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Name, b.Name))
	})
	return r.found
}

func (r *references) add(kind, name string, keys []string, optional *bool, at *field.Path) {
	if r.at == nil {
		r.at = map[[2]string]int{}
	}
	ref := Reference{Kind: kind, Name: name, Keys: keys, Optional: optional != nil && *optional, Path: at.String()}
	if ref.Optional {
		ref.Keys = nil
	}
	i, known := r.at[[2]string{kind, name}]
	if !known {
		r.at[[2]string{kind, name}] = len(r.found)
		r.found = append(r.found, ref)
		return
	}
	before := &r.found[i]
	before.Keys = append(before.Keys, ref.Keys...)
	if before.Optional && !ref.Optional {
		before.Optional, before.Path = false, ref.Path
	}
}

// addSecret adds the Secret of a volume, if the volume names one.
func (r *references) addSecret(ref *corev1.LocalObjectReference, at *field.Path) {
	if ref != nil && ref.Name != "" {
		r.add(secretKind, ref.Name, nil, nil, at.Child("name"))
	}
}

func (r *references) addKeyRefs(from *corev1.EnvVarSource, at *field.Path) {
	if ref := from.SecretKeyRef; ref != nil {
		r.add(secretKind, ref.Name, []string{ref.Key}, ref.Optional, at.Child("secretKeyRef", "name"))
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		r.add(configMapKind, ref.Name, []string{ref.Key}, ref.Optional, at.Child("configMapKeyRef", "name"))
	}
}

// addVolume adds the objects that a volume names. For the claim of an ephemeral volume it adds only the data source.
func (r *references) addVolume(v *corev1.VolumeSource, at *field.Path) {
	switch {
	case v.Secret != nil:
		r.add(secretKind, v.Secret.SecretName, keysOf(v.Secret.Items), v.Secret.Optional, at.Child("secret", "secretName"))
	case v.ConfigMap != nil:
		r.add(configMapKind, v.ConfigMap.Name, keysOf(v.ConfigMap.Items), v.ConfigMap.Optional, at.Child("configMap", "name"))
	case v.Projected != nil:
		r.addProjected(v.Projected.Sources, at.Child("projected", "sources"))
	case v.PersistentVolumeClaim != nil:
		r.add(claimKind, v.PersistentVolumeClaim.ClaimName, nil, nil, at.Child("persistentVolumeClaim", "claimName"))
	case v.Ephemeral != nil:
		r.addClaim(v.Ephemeral.VolumeClaimTemplate, at.Child("ephemeral", "volumeClaimTemplate", "spec"))
	case v.AzureFile != nil:
		r.add(secretKind, v.AzureFile.SecretName, nil, nil, at.Child("azureFile", "secretName"))
	case v.CSI != nil:
		r.addSecret(v.CSI.NodePublishSecretRef, at.Child("csi", "nodePublishSecretRef"))
	case v.CephFS != nil:
		r.addSecret(v.CephFS.SecretRef, at.Child("cephfs", "secretRef"))
	case v.Cinder != nil:
		r.addSecret(v.Cinder.SecretRef, at.Child("cinder", "secretRef"))
	case v.FlexVolume != nil:
		r.addSecret(v.FlexVolume.SecretRef, at.Child("flexVolume", "secretRef"))
	case v.ISCSI != nil:
		r.addSecret(v.ISCSI.SecretRef, at.Child("iscsi", "secretRef"))
	case v.RBD != nil:
		r.addSecret(v.RBD.SecretRef, at.Child("rbd", "secretRef"))
	case v.ScaleIO != nil:
		r.addSecret(v.ScaleIO.SecretRef, at.Child("scaleIO", "secretRef"))
	case v.StorageOS != nil:
		r.addSecret(v.StorageOS.SecretRef, at.Child("storageos", "secretRef"))
	}
}

func (r *references) addProjected(sources []corev1.VolumeProjection, at *field.Path) {
	for i := range sources {
		if s := sources[i].Secret; s != nil {
			r.add(secretKind, s.Name, keysOf(s.Items), s.Optional, at.Index(i).Child("secret", "name"))
		}
		if s := sources[i].ConfigMap; s != nil {
			r.add(configMapKind, s.Name, keysOf(s.Items), s.Optional, at.Index(i).Child("configMap", "name"))
		}
	}
}

// addClaim adds the PersistentVolumeClaim that is the data source of the claim template, if both are in the same
// namespace. The template is not nil, because the items are valid.
func (r *references) addClaim(template *corev1.PersistentVolumeClaimTemplate, at *field.Path) {
	core := func(group *string) bool { return group == nil || *group == "" }
	if from := template.Spec.DataSourceRef; from != nil {
		if from.Kind == claimKind && core(from.APIGroup) && (from.Namespace == nil || *from.Namespace == "") {
			r.add(claimKind, from.Name, nil, nil, at.Child("dataSourceRef", "name"))
		}
		return
	}
	if from := template.Spec.DataSource; from != nil && from.Kind == claimKind && core(from.APIGroup) {
		r.add(claimKind, from.Name, nil, nil, at.Child("dataSource", "name"))
	}
}

func keysOf(items []corev1.KeyToPath) []string {
	var keys []string
	for i := range items {
		keys = append(keys, items[i].Key)
	}
	return keys
}
