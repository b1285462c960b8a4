package inject

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jsonNames returns the JSON names of the fields of a struct, sorted.
func jsonNames[T any]() []string {
	var names []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func TestReferences(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []Reference
	}{
		"None": {
			reason: "A policy without references has none.",
			spec:   `{selector: {}, env: [{name: A, value: x}], volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]}`,
		},
		"Env": {
			reason: "The keys of all items are required, and an object that one item requires is not optional.",
			spec: `
selector: {}
env:
- {name: A, valueFrom: {secretKeyRef: {name: s, key: b}}}
- {name: B, valueFrom: {secretKeyRef: {name: s, key: a}}}
- {name: C, valueFrom: {secretKeyRef: {name: s, key: c, optional: true}}}
- {name: D, valueFrom: {configMapKeyRef: {name: s, key: k, optional: true}}}
envFrom:
- {configMapRef: {name: c, optional: true}}
- {prefix: P_, configMapRef: {name: c}}
- {secretRef: {name: s}}
`,
			want: []Reference{
				{Kind: "ConfigMap", Name: "c", Path: "spec.envFrom[1].configMapRef.name"},
				{Kind: "ConfigMap", Name: "s", Optional: true, Path: "spec.env[3].valueFrom.configMapKeyRef.name"},
				{Kind: "Secret", Name: "s", Keys: []string{"a", "b"}, Path: "spec.env[0].valueFrom.secretKeyRef.name"},
			},
		},
		"Volumes": {
			reason: "All types of volumes can name an object of the namespace.",
			spec: `
selector: {}
volumes:
- {name: a, secret: {secretName: a, items: [{key: "y", path: p}, {key: x, path: q}]}}
- {name: b, configMap: {name: b, optional: true, items: [{key: "y", path: p}]}}
- {name: c, projected: {sources: [{secret: {name: c1}}, {configMap: {name: c2, items: [{key: k, path: p}]}}]}}
- {name: d, persistentVolumeClaim: {claimName: d}}
- {name: e, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSource: {kind: PersistentVolumeClaim, name: e}}}}}
- {name: f, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSourceRef: {kind: PersistentVolumeClaim, name: f}}}}}
- {name: g, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}, dataSourceRef: {apiGroup: example.com, kind: X, name: g}}}}}
- {name: h, azureFile: {secretName: h, shareName: x}}
- {name: i, csi: {driver: x, nodePublishSecretRef: {name: i}}}
- {name: j, cephfs: {monitors: [x], secretRef: {name: j}}}
- {name: k, cinder: {volumeID: x, secretRef: {name: k}}}
- {name: l, flexVolume: {driver: x, secretRef: {name: l}}}
- {name: m, iscsi: {targetPortal: x, iqn: "iqn.2026-01.com.example:a", lun: 0, secretRef: {name: m}}}
- {name: "n", rbd: {monitors: [x], image: x, secretRef: {name: "n"}}}
- {name: o, scaleIO: {gateway: x, system: x, volumeName: x, secretRef: {name: o}}}
- {name: p, storageos: {volumeName: x, secretRef: {name: p}}}
- {name: q, csi: {driver: x}}
`,
			want: []Reference{
				{Kind: "ConfigMap", Name: "b", Optional: true, Path: "spec.volumes[1].configMap.name"},
				{Kind: "ConfigMap", Name: "c2", Keys: []string{"k"}, Path: "spec.volumes[2].projected.sources[1].configMap.name"},
				{Kind: "PersistentVolumeClaim", Name: "d", Path: "spec.volumes[3].persistentVolumeClaim.claimName"},
				{Kind: "PersistentVolumeClaim", Name: "e", Path: "spec.volumes[4].ephemeral.volumeClaimTemplate.spec.dataSource.name"},
				{Kind: "PersistentVolumeClaim", Name: "f", Path: "spec.volumes[5].ephemeral.volumeClaimTemplate.spec.dataSourceRef.name"},
				{Kind: "Secret", Name: "a", Keys: []string{"x", "y"}, Path: "spec.volumes[0].secret.secretName"},
				{Kind: "Secret", Name: "c1", Path: "spec.volumes[2].projected.sources[0].secret.name"},
				{Kind: "Secret", Name: "h", Path: "spec.volumes[7].azureFile.secretName"},
				{Kind: "Secret", Name: "i", Path: "spec.volumes[8].csi.nodePublishSecretRef.name"},
				{Kind: "Secret", Name: "j", Path: "spec.volumes[9].cephfs.secretRef.name"},
				{Kind: "Secret", Name: "k", Path: "spec.volumes[10].cinder.secretRef.name"},
				{Kind: "Secret", Name: "l", Path: "spec.volumes[11].flexVolume.secretRef.name"},
				{Kind: "Secret", Name: "m", Path: "spec.volumes[12].iscsi.secretRef.name"},
				{Kind: "Secret", Name: "n", Path: "spec.volumes[13].rbd.secretRef.name"},
				{Kind: "Secret", Name: "o", Path: "spec.volumes[14].scaleIO.secretRef.name"},
				{Kind: "Secret", Name: "p", Path: "spec.volumes[15].storageos.secretRef.name"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, compiled(t, tc.spec).References()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
