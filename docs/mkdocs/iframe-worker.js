// Browsers start no worker for a page that was opened from the file system: there the search runs in a hidden frame.
if (location.protocol === "file:")
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.body.appendChild(document.createElement("iframe"))
      frame.hidden = true
      this.ready = new Promise(resolve => window.addEventListener("message", ({ source, data }) => {
        if (source !== frame.contentWindow) return
        if (data === "ready") resolve(frame.contentWindow)
        else this.dispatchEvent(new MessageEvent("message", { data }))
      }))
      frame.srcdoc = `<script>
        postMessage = data => parent.postMessage(data, "*")
        importScripts = (...urls) => Promise.all(urls.map(src => new Promise(loaded =>
          document.head.append(Object.assign(document.createElement("script"), { src, onload: loaded })))))
        </script><script src="${new URL(url, location)}" onload="postMessage('ready')"></script>`
    }
    async postMessage(data) { (await this.ready).dispatchEvent(new MessageEvent("message", { data })) }
    terminate() {}
  }
