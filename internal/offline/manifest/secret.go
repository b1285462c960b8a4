package manifest

import (
	"encoding/base64"
	"maps"
)

// mergeStringData puts what stringData of a Secret says into data, as an API server does with what it stores:
// a key in both has the value of stringData. It leaves what is no map of strings, which the schema refuses.
//
// Source: https://kubernetes.io/docs/concepts/configuration/secret/#restriction-names-data
func mergeStringData(content map[string]any) {
	if content["kind"] != "Secret" || content["apiVersion"] != "v1" {
		return
	}
	text, ok := content["stringData"].(map[string]any)
	data, isMap := content["data"].(map[string]any)
	if !ok || (!isMap && content["data"] != nil) {
		return
	}
	merged := make(map[string]any, len(data)+len(text))
	maps.Copy(merged, data)
	for key, value := range text {
		s, isString := value.(string)
		if !isString && value != nil {
			return
		}
		merged[key] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	content["data"] = merged
	delete(content, "stringData")
}
