package simulate

import (
	"encoding/base64"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

//nolint:gochecknoglobals // They are constants.
var (
	deploymentEdits = []edit{changeImage, changeImage, changeImage, changeReplicas, changeReplicas, changeReferences, changeEnv, changeLabel}
	configEdits     = []edit{changeData, changeData, changeData, changeLabel}
	secretEdits     = []edit{changePassword, changePassword, changeLabel}
	claimEdits      = []edit{growClaim, changeLabel}
	serviceEdits    = []edit{changePort, changeServiceType, changeLabel}
	jobEdits        = []edit{suspendJob, changeJobLimit, changeLabel}
	scalerEdits     = []edit{changeMost, changeLabel}
	widgetEdits     = []edit{changeSize, changeParts, changeLabel}
)

func containers(o *unstructured.Unstructured) []any {
	all, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers") // Other objects have no containers.
	return all
}

func imageOf(o *unstructured.Unstructured) string {
	for _, c := range containers(o) {
		if c, ok := c.(map[string]any); ok && c["name"] == "web" {
			image, _ := c["image"].(string)
			return image
		}
	}
	return ""
}

// changeContainer changes the container web of a workload.
func changeContainer(o *unstructured.Unstructured, change func(c map[string]any)) bool {
	all := containers(o)
	for _, c := range all {
		if c, ok := c.(map[string]any); ok && c["name"] == "web" {
			change(c)
			return unstructured.SetNestedSlice(o.Object, all, "spec", "template", "spec", "containers") == nil
		}
	}
	return false
}

func changeImage(w *World, o *unstructured.Unstructured) bool {
	was, now := imageOf(o), w.image()
	return was != now && changeContainer(o, func(c map[string]any) { c["image"] = now })
}

func setNumber(o *unstructured.Unstructured, now int64, path ...string) bool {
	was, _, _ := unstructured.NestedInt64(o.Object, path...) // 0 for an object without the field.
	return was != now && unstructured.SetNestedField(o.Object, now, path...) == nil
}

func changeReplicas(w *World, o *unstructured.Unstructured) bool {
	return setNumber(o, int64(w.Rand.IntN(8)), "spec", "replicas")
}

func changeReferences(w *World, o *unstructured.Unstructured) bool {
	which := w.Rand.IntN(1 << len(referred))
	extra := anything(references(which))
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec") // Nil for an object without the field.
	if spec == nil {
		return false
	}
	for _, key := range []string{"volumes", "serviceAccountName"} {
		delete(spec, key)
		if v := extra[key]; v != nil {
			spec[key] = v
		}
	}
	if unstructured.SetNestedMap(o.Object, spec, "spec", "template", "spec") != nil {
		return false
	}
	return changeContainer(o, func(c map[string]any) {
		for _, key := range []string{"envFrom", "volumeMounts"} {
			delete(c, key)
			if v := extra[key]; v != nil {
				c[key] = v
			}
		}
	})
}

func changeEnv(w *World, o *unstructured.Unstructured) bool {
	value := fmt.Sprint(w.Rand.IntN(100))
	return changeContainer(o, func(c map[string]any) { c["env"] = []any{map[string]any{"name": "LEVEL", "value": value}} })
}

func changeLabel(w *World, o *unstructured.Unstructured) bool {
	label(o, "version", fmt.Sprintf("v%d", w.Rand.IntN(9)))
	return true
}

func changeData(w *World, o *unstructured.Unstructured) bool {
	key, value := []string{"level", "mode", "extra"}[w.Rand.IntN(3)], fmt.Sprint(w.Rand.IntN(100))
	if w.Rand.IntN(4) == 0 {
		unstructured.RemoveNestedField(o.Object, "data", key)
		return true
	}
	return unstructured.SetNestedField(o.Object, value, "data", key) == nil
}

func changePassword(w *World, o *unstructured.Unstructured) bool {
	n := w.Rand.IntN(100)
	return unstructured.SetNestedField(o.Object, base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "secret-%d", n)), "data", "password") == nil
}

func growClaim(_ *World, o *unstructured.Unstructured) bool {
	was, _, _ := unstructured.NestedString(o.Object, "spec", "resources", "requests", "storage") // Empty for an object without the field.
	sizes := []string{"1Gi", "2Gi", "5Gi", "10Gi"}
	i := slices.Index(sizes[:len(sizes)-1], was)
	return i >= 0 && unstructured.SetNestedField(o.Object, sizes[i+1], "spec", "resources", "requests", "storage") == nil
}

func changePort(w *World, o *unstructured.Unstructured) bool {
	ports, _, _ := unstructured.NestedSlice(o.Object, "spec", "ports") // Nil for an object without the field.
	if len(ports) == 0 {
		return false
	}
	p, _ := ports[0].(map[string]any)
	p["targetPort"] = int64(8000 + w.Rand.IntN(20))
	return unstructured.SetNestedSlice(o.Object, ports, "spec", "ports") == nil
}

func changeServiceType(w *World, o *unstructured.Unstructured) bool {
	was, _, _ := unstructured.NestedString(o.Object, "spec", "type") // Empty for an object without the field.
	now := []string{"ClusterIP", "NodePort", "LoadBalancer"}[w.Rand.IntN(3)]
	return was != now && unstructured.SetNestedField(o.Object, now, "spec", "type") == nil
}

func suspendJob(_ *World, o *unstructured.Unstructured) bool {
	was, _, _ := unstructured.NestedBool(o.Object, "spec", "suspend") // False for an object without the field.
	return unstructured.SetNestedField(o.Object, !was, "spec", "suspend") == nil
}

func changeJobLimit(w *World, o *unstructured.Unstructured) bool {
	return setNumber(o, int64(w.Rand.IntN(6)), "spec", "backoffLimit")
}

func changeSchedule(w *World, o *unstructured.Unstructured) bool {
	return unstructured.SetNestedField(o.Object, fmt.Sprintf("0 %d * * *", w.Rand.IntN(24)), "spec", "schedule") == nil
}

func changeMost(w *World, o *unstructured.Unstructured) bool {
	return setNumber(o, int64(2+w.Rand.IntN(8)), "spec", "maxReplicas")
}

func changeSize(w *World, o *unstructured.Unstructured) bool {
	return setNumber(o, int64(w.Rand.IntN(10)), "spec", "size")
}

func changeParts(w *World, o *unstructured.Unstructured) bool {
	return unstructured.SetNestedSlice(o.Object, []any{"a", "b", "c", "d"}[:w.Rand.IntN(5)], "spec", "parts") == nil
}
