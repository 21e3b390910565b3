package front

import (
	"strings"
	"testing"
)

func (l *lab) placementSpec(name string) obj {
	pod := moref(l.find("/dc1/datastore/workload-datastore-cluster"))
	d := disk("", 100)
	d["backing"].(obj)["fileName"] = ""
	config := machine(name, "", obj{"deviceChange": []obj{add(scsi()), add(d, obj{"fileOperation": "create"})}})
	delete(config, "files")
	return obj{"storageSpec": obj{
		"_typeName": "StoragePlacementSpec", "type": "create", "configSpec": config,
		"folder": moref(l.find("/dc1/vm")), "resourcePool": moref(l.find("/dc1/host/cluster/Resources")),
		"podSelectionSpec": obj{
			"_typeName": "StorageDrsPodSelectionSpec", "storagePod": pod,
			"initialVmConfig": []obj{{"_typeName": "VmPodConfigForPlacement", "storagePod": pod, "disk": []obj{
				{"_typeName": "PodDiskLocator", "diskId": -102, "diskBackingInfo": d["backing"]},
			}}},
		},
	}}
}

func TestDatastoreCluster(t *testing.T) {
	l := loggedIn(t)
	pod := l.find("/dc1/datastore/workload-datastore-cluster")
	children := must(decodeList(l.get(pod, "childEntity")))
	if len(children) != 3 {
		t.Fatalf("children: %v", children)
	}
	l.find("/dc1/datastore/workload-datastore-cluster/ds-1")
	if a := l.get(pod, "podStorageDrsEntry"); !strings.Contains(string(a.body), `"enabled":true`) {
		t.Errorf("SDRS: %s", a.body)
	}
	l.admin("POST", "datastores/ds-0", obj{"freeBytes": 50 << 30}, nil)
	l.admin("POST", "datastores/ds-2", obj{"maintenance": true}, nil)
	var free float64
	for _, c := range children {
		free += l.get(ref{Type: "Datastore", Value: c["value"].(string)}, "summary").object(t)["freeSpace"].(float64)
	}
	if got := l.get(pod, "summary").object(t)["freeSpace"]; got != free {
		t.Errorf("pod has %v free, its children %v", got, free)
	}
	result := l.call(storageManager, "RecommendDatastores", l.placementSpec("node-1")).object(t)
	recommendations := result["recommendations"].([]any)
	if len(recommendations) != 1 {
		t.Fatalf("recommendations: %v", recommendations)
	}
	first := recommendations[0].(obj)
	action := first["action"].([]any)[0].(obj)
	if action["_typeName"] != "StoragePlacementAction" || action["destination"].(obj)["value"] != l.find("/dc1/datastore/workload-datastore-cluster/ds-1").Value {
		t.Errorf("action: %v", action)
	}
	applied := l.done(l.call(storageManager, "ApplyStorageDrsRecommendation_Task", obj{"key": []any{first["key"]}})).(obj)
	if applied["_typeName"] != "ApplyStorageRecommendationResult" || applied["vm"].(obj)["value"] != l.vm("node-1").Moref {
		t.Errorf("applied: %v", applied)
	}
	if v := l.vm("node-1"); !strings.HasPrefix(v.Disks[0].File, "[ds-1] ") || !strings.HasPrefix(v.VMPathName, "[ds-1] ") {
		t.Errorf("placed: %+v", v)
	}
	l.fault(storageManager, "ApplyStorageDrsRecommendation_Task", obj{"key": []any{first["key"]}}, "InvalidArgument")

	l.admin("POST", "datastores/ds-1", obj{"freeBytes": 1 << 30}, nil)
	result = l.call(storageManager, "RecommendDatastores", l.placementSpec("node-2")).object(t)
	if _, some := result["recommendations"]; some {
		t.Errorf("recommendations without space: %v", result)
	}
	fault := result["drsFault"].(obj)["faultsByVm"].([]any)[0].(obj)["fault"].([]any)[0].(obj)
	if fault["_typeName"] != "InsufficientStorageSpace" {
		t.Errorf("drsFault: %v", result["drsFault"])
	}
	bad := l.placementSpec("node-3")
	bad["storageSpec"].(obj)["podSelectionSpec"].(obj)["initialVmConfig"] = []obj{}
	l.fault(storageManager, "RecommendDatastores", bad, "InvalidArgument")
	bad = l.placementSpec("node-3")
	bad["storageSpec"].(obj)["podSelectionSpec"].(obj)["storagePod"] = moref(ref{Type: "StoragePod", Value: "group-p999"})
	l.fault(storageManager, "RecommendDatastores", bad, "ManagedObjectNotFound")
}
